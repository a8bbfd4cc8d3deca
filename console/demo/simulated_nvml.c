/* A libnvidia-ml.so.1 without a GPU, for the demo and the tests. It says what its state file says, and calls its cards
 * SIMULATED so that nobody takes them for real ones. Signatures follow nvml.h of CUDA 12. */
#include "simulated_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, NOT_LOADED = 9, LOST = 15, MISMATCH = 18 };

typedef gpu_t *device_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int instance, compute_instance; } process_info_t;
typedef struct {
    char legacy_bus_id[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info_t;
typedef struct { unsigned int version, sensor; int temperature; } temperature_t;

static state_t state;
static struct timespec read_at;

static void blank(gpu_t *gpu) {
    memset(gpu, 0, sizeof *gpu);
    gpu->total = gpu->used = gpu->util = gpu->memory_util = gpu->temperature = gpu->power = gpu->power_limit = UNSET;
    gpu->clock = gpu->throttle = gpu->ecc = UNSET;
}

static void about_driver(state_t *s, const char *key, const char *rest) {
    if (!strcmp(key, "driver")) snprintf(s->driver, WORD, "%s", rest);
    else if (!strcmp(key, "cuda")) sscanf(rest, "%lld", &s->cuda);
    else if (!strcmp(key, "init")) sscanf(rest, "%lld", &s->init);
    else if (!strcmp(key, "wedge")) sscanf(rest, "%lld", &s->wedge);
}

static void about_gpu(gpu_t *g, const char *key, const char *rest) {
    if (!strcmp(key, "name")) snprintf(g->name, WORD, "%s", rest);
    else if (!strcmp(key, "pci")) snprintf(g->pci, sizeof g->pci, "%s", rest);
    else if (!strcmp(key, "memory")) sscanf(rest, "%lld %lld", &g->total, &g->used);
    else if (!strcmp(key, "util")) sscanf(rest, "%lld %lld", &g->util, &g->memory_util);
    else if (!strcmp(key, "temperature")) sscanf(rest, "%lld", &g->temperature);
    else if (!strcmp(key, "power")) sscanf(rest, "%lld %lld", &g->power, &g->power_limit);
    else if (!strcmp(key, "clock")) sscanf(rest, "%lld", &g->clock);
    else if (!strcmp(key, "throttle")) sscanf(rest, "%lld", &g->throttle);
    else if (!strcmp(key, "ecc")) sscanf(rest, "%lld", &g->ecc);
    else if (!strcmp(key, "lost")) sscanf(rest, "%lld", &g->lost);
    else if (!strcmp(key, "wedge")) sscanf(rest, "%lld", &g->wedge);
    else if (!strcmp(key, "process") && g->process_count < MOST_PROCESSES) {
        process_t *p = &g->processes[g->process_count];
        if (sscanf(rest, "%u %llu", &p->pid, &p->bytes) == 2) g->process_count++;
    }
}

static int refresh(void) {
    static state_t fresh;
    char line[512], key[32], rest[WORD];
    struct stat status;
    const char *path = getenv(STATE_VARIABLE);
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return NOT_LOADED;
    if (fstat(fileno(file), &status) == 0 && !memcmp(&status.st_mtim, &read_at, sizeof read_at)) {
        fclose(file);
        return SUCCESS;
    }
    memset(&fresh, 0, sizeof fresh);
    while (fgets(line, sizeof line, file)) {
        rest[0] = 0;
        if (line[0] == '#' || sscanf(line, "%31s %127[^\n]", key, rest) < 1) continue;
        if (!strcmp(key, "gpu")) {
            if (fresh.count == MOST_GPUS) break;
            blank(&fresh.gpus[fresh.count]);
            snprintf(fresh.gpus[fresh.count++].uuid, WORD, "%s", rest);
        } else if (fresh.count) about_gpu(&fresh.gpus[fresh.count - 1], key, rest);
        else about_driver(&fresh, key, rest);
    }
    fclose(file);
    state = fresh;
    read_at = status.st_mtim;
    return SUCCESS;
}

static int reach(device_t gpu) {
    int failed = refresh();
    if (failed) return failed;
    if (gpu < state.gpus || gpu >= state.gpus + state.count) return LOST;
    if (state.wedge) sleep((unsigned int)state.wedge);
    if (gpu->wedge) sleep((unsigned int)gpu->wedge);
    return (int)gpu->lost;
}

static int number(device_t gpu, long long value, unsigned int *out) {
    int failed = reach(gpu);
    if (failed) return failed;
    if (value == UNSET) return NOT_SUPPORTED;
    *out = (unsigned int)value;
    return SUCCESS;
}

static int large(device_t gpu, long long value, unsigned long long *out) {
    int failed = reach(gpu);
    if (failed) return failed;
    if (value == UNSET) return NOT_SUPPORTED;
    *out = (unsigned long long)value;
    return SUCCESS;
}

static int words(const char *text, char *out, unsigned int size) {
    if (strlen(text) >= size) return TOO_SMALL;
    strcpy(out, text);
    return SUCCESS;
}

int nvmlInit_v2(void) {
    int failed = refresh();
    return failed ? failed : (int)state.init;
}
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
        case SUCCESS: return "Success";
        case INVALID: return "Invalid Argument";
        case NOT_SUPPORTED: return "Not Supported";
        case TOO_SMALL: return "Insufficient Size";
        case NOT_LOADED: return "Driver Not Loaded";
        case LOST: return "GPU is lost";
        case 16: return "GPU requires reset";
        case MISMATCH: return "Driver/library version mismatch";
        default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *out, unsigned int size) { refresh(); return words(state.driver, out, size); }
int nvmlSystemGetNVMLVersion(char *out, unsigned int size) { return words("simulated", out, size); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { refresh(); *out = (int)state.cuda; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

int nvmlDeviceGetCount_v2(unsigned int *out) { int failed = refresh(); *out = state.count; return failed; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *out) {
    int failed = refresh();
    if (failed) return failed;
    if (index >= state.count) return INVALID;
    *out = &state.gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *out) {
    refresh();
    for (unsigned int i = 0; i < state.count; i++)
        if (!strcmp(state.gpus[i].uuid, uuid)) { *out = &state.gpus[i]; return SUCCESS; }
    return 6;
}

int nvmlDeviceGetIndex(device_t gpu, unsigned int *out) { return number(gpu, gpu - state.gpus, out); }
int nvmlDeviceGetMinorNumber(device_t gpu, unsigned int *out) { return number(gpu, gpu - state.gpus, out); }

/* the driver still knows who a lost card was */
int nvmlDeviceGetUUID(device_t gpu, char *out, unsigned int size) {
    int failed = reach(gpu);
    return failed && failed != LOST ? failed : words(gpu->uuid, out, size);
}
int nvmlDeviceGetName(device_t gpu, char *out, unsigned int size) {
    int failed = reach(gpu);
    return failed ? failed : words(gpu->name, out, size);
}

int nvmlDeviceGetPciInfo_v3(device_t gpu, pci_info_t *out) {
    int failed = reach(gpu);
    if (failed) return failed;
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", gpu->pci);
    sscanf(gpu->pci, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "%04x:%02x:%02x.0", out->domain & 0xffff, out->bus & 0xff,
             out->device & 0xff);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device_t gpu, memory_t *out) {
    int failed = reach(gpu);
    if (failed) return failed;
    if (gpu->total == UNSET) return NOT_SUPPORTED;
    out->total = (unsigned long long)gpu->total;
    out->used = gpu->used == UNSET ? 0 : (unsigned long long)gpu->used;
    out->free = out->total - out->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(device_t gpu, memory_v2_t *out) {
    memory_t plain;
    int failed = nvmlDeviceGetMemoryInfo(gpu, &plain);
    if (failed) return failed;
    out->total = plain.total, out->used = plain.used, out->free = plain.free, out->reserved = 0;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device_t gpu, utilization_t *out) {
    int failed = reach(gpu);
    if (failed) return failed;
    if (gpu->util == UNSET) return NOT_SUPPORTED;
    out->gpu = (unsigned int)gpu->util;
    out->memory = gpu->memory_util == UNSET ? 0 : (unsigned int)gpu->memory_util;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(device_t gpu, unsigned int sensor, unsigned int *out) {
    (void)sensor;
    return number(gpu, gpu->temperature, out);
}
int nvmlDeviceGetTemperatureV(device_t gpu, temperature_t *out) {
    return number(gpu, gpu->temperature, (unsigned int *)&out->temperature);
}
int nvmlDeviceGetPowerUsage(device_t gpu, unsigned int *out) { return number(gpu, gpu->power, out); }
int nvmlDeviceGetEnforcedPowerLimit(device_t gpu, unsigned int *out) { return number(gpu, gpu->power_limit, out); }
int nvmlDeviceGetPowerManagementLimit(device_t gpu, unsigned int *out) { return number(gpu, gpu->power_limit, out); }
int nvmlDeviceGetClockInfo(device_t gpu, unsigned int kind, unsigned int *out) {
    (void)kind;
    return number(gpu, gpu->clock, out);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t gpu, unsigned long long *out) {
    return large(gpu, gpu->throttle, out);
}
int nvmlDeviceGetCurrentClocksEventReasons(device_t gpu, unsigned long long *out) {
    return large(gpu, gpu->throttle, out);
}
int nvmlDeviceGetTotalEccErrors(device_t gpu, unsigned int type, unsigned int counter, unsigned long long *out) {
    (void)type, (void)counter;
    return large(gpu, gpu->ecc, out);
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t gpu, unsigned int *count, process_info_t *out) {
    unsigned int room = *count;
    int failed = reach(gpu);
    if (failed) return failed;
    *count = gpu->process_count;
    if (!gpu->process_count) return SUCCESS;
    if (room < gpu->process_count || !out) return TOO_SMALL;
    for (unsigned int i = 0; i < gpu->process_count; i++) {
        process_info_t one = {gpu->processes[i].pid, gpu->processes[i].bytes, 0xffffffffu, 0xffffffffu};
        out[i] = one;
    }
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v2(device_t gpu, unsigned int *count, process_info_t *out) {
    return nvmlDeviceGetComputeRunningProcesses_v3(gpu, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t gpu, unsigned int *count, process_info_t *out) {
    (void)out;
    *count = 0;
    return reach(gpu);
}
