/* A libnvidia-ml.so.1 without a GPU, for the demo and the tests. It says what its state file says, and calls its cards
 * SIMULATED so that nobody takes them for real ones. Signatures follow nvml.h of CUDA 12. */
#include "simulated_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, NOT_LOADED = 9, TIMED_OUT = 10, LOST = 15, MISMATCH = 18 };

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
typedef struct { unsigned long long total, free, used; } bar1_t;
typedef struct {
    unsigned int field, scope;
    long long timestamp, latency_us;
    int type, result;
    union { double real; unsigned int number; unsigned long long large; } value;
} field_t;
typedef struct { device_t device; unsigned long long type, data; unsigned int instance, compute_instance; } event_t;
typedef struct { unsigned int version, supported; } gpm_support_t;
typedef struct { unsigned int id; int result; double value; char *info[3]; } gpm_metric_t;
typedef struct { unsigned int version, count; void *from, *to; gpm_metric_t metrics[]; } gpm_t;
typedef struct { device_t device; } gpm_sample_t;
typedef struct { long long told[MOST_GPUS]; unsigned char registered[MOST_GPUS]; } event_set_t;

static state_t state;
static struct timespec read_at;

static const char *const FIGURE[FIGURES] = {
    "memory", "reserved", "bar1", "util", "codec", "active", "temperature", "slowdown", "hbm", "power", "clock",
    "throttle", "ecc", "rows", "pages", "pcie", "nvlink", "persistence", "lost", "wedge",
};

static void blank(gpu_t *gpu) {
    memset(gpu, 0, sizeof *gpu);
    for (int i = 0; i < FIGURES; i++)
        for (int j = 0; j < MOST_VALUES; j++) gpu->figures[i][j] = UNSET;
    gpu->figures[LOST_WITH][0] = gpu->figures[WEDGE][0] = 0;
}

static void about_driver(state_t *s, const char *key, const char *rest) {
    if (!strcmp(key, "driver")) snprintf(s->driver, WORD, "%s", rest);
    else if (!strcmp(key, "cuda")) sscanf(rest, "%lld", &s->cuda);
    else if (!strcmp(key, "init")) sscanf(rest, "%lld", &s->init);
    else if (!strcmp(key, "wedge")) sscanf(rest, "%lld", &s->wedge);
}

static void about_gpu(gpu_t *g, const char *key, const char *rest) {
    for (int i = 0; i < FIGURES; i++)
        if (!strcmp(key, FIGURE[i])) {
            long long *v = g->figures[i];
            sscanf(rest, "%lld %lld %lld %lld %lld", v, v + 1, v + 2, v + 3, v + 4);
            return;
        }
    if (!strcmp(key, "name")) snprintf(g->name, WORD, "%s", rest);
    else if (!strcmp(key, "pci")) snprintf(g->pci, sizeof g->pci, "%.31s", rest);
    else if (!strcmp(key, "serial")) snprintf(g->serial, sizeof g->serial, "%s", rest);
    else if (!strcmp(key, "vbios")) snprintf(g->vbios, sizeof g->vbios, "%s", rest);
    else if (!strcmp(key, "nomig")) g->mig_possible = 1;
    else if (!strcmp(key, "process") && g->process_count < MOST_PROCESSES) {
        process_t *p = &g->processes[g->process_count];
        if (sscanf(rest, "%u %llu", &p->pid, &p->bytes) == 2) g->process_count++;
    } else if (!strcmp(key, "mig") && g->instance_count < MOST_INSTANCES) {
        instance_t *one = &g->instances[g->instance_count];
        if (sscanf(rest, "%127s %llu %llu %31s", one->uuid, &one->total, &one->used, one->profile) == 4) {
            g->instance_count++;
            g->mig_possible = 1;
        }
    } else if (!strcmp(key, "xid") && g->xid_count < MOST_XIDS) {
        xid_t *one = &g->xids[g->xid_count];
        if (sscanf(rest, "%lld %lld", &one->number, &one->code) == 2) g->xid_count++;
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
    if (gpu->figures[WEDGE][0]) sleep((unsigned int)gpu->figures[WEDGE][0]);
    return (int)gpu->figures[LOST_WITH][0];
}

/* an instance's handle points into its card */
static instance_t *instance(device_t gpu) {
    for (unsigned int i = 0; i < state.count; i++) {
        instance_t *one = (instance_t *)(void *)gpu, *first = state.gpus[i].instances;
        if (one >= first && one < first + MOST_INSTANCES) return one;
    }
    return NULL;
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
        case TIMED_OUT: return "Timeout";
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
    if (!refresh() && instance(gpu)) return words(instance(gpu)->uuid, out, size);
    int failed = reach(gpu);
    return failed && failed != LOST ? failed : words(gpu->uuid, out, size);
}
int nvmlDeviceGetName(device_t gpu, char *out, unsigned int size) {
    char text[2 * WORD];
    if (!refresh() && instance(gpu)) {
        snprintf(text, sizeof text, "SIMULATED MIG %s", instance(gpu)->profile);
        return words(text, out, size);
    }
    int failed = reach(gpu);
    return failed ? failed : words(gpu->name, out, size);
}
static int label(device_t gpu, const char *text, char *out, unsigned int size) {
    int failed = reach(gpu);
    return failed ? failed : *text ? words(text, out, size) : NOT_SUPPORTED;
}
int nvmlDeviceGetSerial(device_t gpu, char *out, unsigned int size) { return label(gpu, gpu->serial, out, size); }
int nvmlDeviceGetVbiosVersion(device_t gpu, char *out, unsigned int size) { return label(gpu, gpu->vbios, out, size); }

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

/* the first version of the call counts what is reserved as used, as the real one does */
int nvmlDeviceGetMemoryInfo(device_t gpu, memory_t *out) {
    if (!refresh() && instance(gpu)) {
        out->total = instance(gpu)->total, out->used = instance(gpu)->used, out->free = out->total - out->used;
        return SUCCESS;
    }
    int failed = reach(gpu);
    if (failed) return failed;
    long long *memory = gpu->figures[MEMORY], reserved = gpu->figures[RESERVED][0];
    if (memory[0] == UNSET) return NOT_SUPPORTED;
    out->total = (unsigned long long)memory[0];
    out->used = (unsigned long long)((memory[1] == UNSET ? 0 : memory[1]) + (reserved == UNSET ? 0 : reserved));
    out->free = out->total - out->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(device_t gpu, memory_v2_t *out) {
    memory_t plain;
    int failed = nvmlDeviceGetMemoryInfo(gpu, &plain);
    if (failed) return failed;
    long long reserved = instance(gpu) ? UNSET : gpu->figures[RESERVED][0];
    out->reserved = reserved == UNSET ? 0 : (unsigned long long)reserved;
    out->total = plain.total, out->used = plain.used - out->reserved, out->free = plain.free;
    return SUCCESS;
}

int nvmlDeviceGetBAR1MemoryInfo(device_t gpu, bar1_t *out) {
    int failed = large(gpu, gpu->figures[BAR1][0], &out->total);
    if (failed) return failed;
    out->used = (unsigned long long)gpu->figures[BAR1][1];
    out->free = out->total - out->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device_t gpu, utilization_t *out) {
    int failed = number(gpu, gpu->figures[UTIL][0], &out->gpu);
    if (failed) return failed;
    out->memory = gpu->figures[UTIL][1] == UNSET ? 0 : (unsigned int)gpu->figures[UTIL][1];
    return SUCCESS;
}
static int codec(device_t gpu, int which, unsigned int *out, unsigned int *period_us) {
    *period_us = 167000;
    return number(gpu, gpu->figures[CODEC][which], out);
}
int nvmlDeviceGetEncoderUtilization(device_t gpu, unsigned int *out, unsigned int *us) { return codec(gpu, 0, out, us); }
int nvmlDeviceGetDecoderUtilization(device_t gpu, unsigned int *out, unsigned int *us) { return codec(gpu, 1, out, us); }

int nvmlDeviceGetTemperature(device_t gpu, unsigned int sensor, unsigned int *out) {
    (void)sensor;
    return number(gpu, gpu->figures[TEMPERATURE][0], out);
}
int nvmlDeviceGetTemperatureV(device_t gpu, temperature_t *out) {
    return number(gpu, gpu->figures[TEMPERATURE][0], (unsigned int *)&out->temperature);
}
int nvmlDeviceGetTemperatureThreshold(device_t gpu, unsigned int which, unsigned int *out) {
    return which == 1 ? number(gpu, gpu->figures[SLOWDOWN][0], out) : NOT_SUPPORTED;
}
int nvmlDeviceGetFieldValues(device_t gpu, int count, field_t *fields) {
    int failed = reach(gpu);
    if (failed) return failed;
    for (int i = 0; i < count; i++) {
        long long hbm = fields[i].field == 82 ? gpu->figures[HBM][0] : UNSET; /* NVML_FI_DEV_MEMORY_TEMP */
        fields[i].result = hbm == UNSET ? NOT_SUPPORTED : SUCCESS;
        fields[i].value.large = 0;
        if (hbm != UNSET) fields[i].value.number = (unsigned int)hbm;
    }
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(device_t gpu, unsigned int *out) { return number(gpu, gpu->figures[POWER][0], out); }
int nvmlDeviceGetEnforcedPowerLimit(device_t gpu, unsigned int *out) { return number(gpu, gpu->figures[POWER][1], out); }
int nvmlDeviceGetPowerManagementLimit(device_t gpu, unsigned int *out) { return number(gpu, gpu->figures[POWER][1], out); }
int nvmlDeviceGetClockInfo(device_t gpu, unsigned int kind, unsigned int *out) { /* 1 SM, 2 memory */
    return kind == 1 || kind == 2 ? number(gpu, gpu->figures[CLOCK][kind == 1 ? 0 : 2], out) : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxClockInfo(device_t gpu, unsigned int kind, unsigned int *out) {
    return kind == 1 ? number(gpu, gpu->figures[CLOCK][1], out) : NOT_SUPPORTED;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t gpu, unsigned long long *out) {
    return large(gpu, gpu->figures[THROTTLE][0], out);
}
int nvmlDeviceGetCurrentClocksEventReasons(device_t gpu, unsigned long long *out) {
    return large(gpu, gpu->figures[THROTTLE][0], out);
}
int nvmlDeviceGetTotalEccErrors(device_t gpu, unsigned int type, unsigned int counter, unsigned long long *out) {
    (void)counter;
    return large(gpu, gpu->figures[ECC][type == 1 ? 0 : 1], out); /* 1 uncorrected, 0 corrected */
}
int nvmlDeviceGetRemappedRows(device_t gpu, unsigned int *correctable, unsigned int *uncorrectable,
                              unsigned int *pending, unsigned int *failure) {
    int failed = number(gpu, gpu->figures[ROWS][0], correctable);
    if (failed) return failed;
    *uncorrectable = (unsigned int)gpu->figures[ROWS][1];
    *pending = (unsigned int)gpu->figures[ROWS][2];
    *failure = (unsigned int)gpu->figures[ROWS][3];
    return SUCCESS;
}
int nvmlDeviceGetRetiredPages(device_t gpu, unsigned int cause, unsigned int *count, unsigned long long *out) {
    unsigned int room = *count, there;
    int failed = number(gpu, gpu->figures[PAGES][cause ? 1 : 0], &there);
    if (failed) return failed;
    *count = there;
    if (!there) return SUCCESS;
    if (!out || room < there) return TOO_SMALL;
    for (unsigned int i = 0; i < there; i++) out[i] = 0x1000ULL * (i + 1);
    return SUCCESS;
}
int nvmlDeviceGetRetiredPagesPendingStatus(device_t gpu, unsigned int *out) {
    return number(gpu, gpu->figures[PAGES][2], out);
}
int nvmlDeviceGetCurrPcieLinkGeneration(device_t gpu, unsigned int *out) { return number(gpu, gpu->figures[PCIE][0], out); }
int nvmlDeviceGetMaxPcieLinkGeneration(device_t gpu, unsigned int *out) { return number(gpu, gpu->figures[PCIE][1], out); }
int nvmlDeviceGetCurrPcieLinkWidth(device_t gpu, unsigned int *out) { return number(gpu, gpu->figures[PCIE][2], out); }
int nvmlDeviceGetMaxPcieLinkWidth(device_t gpu, unsigned int *out) { return number(gpu, gpu->figures[PCIE][3], out); }
int nvmlDeviceGetPcieReplayCounter(device_t gpu, unsigned int *out) { return number(gpu, gpu->figures[PCIE][4], out); }
int nvmlDeviceGetNvLinkState(device_t gpu, unsigned int link, unsigned int *out) {
    unsigned int links;
    int failed = number(gpu, gpu->figures[NVLINK][0], &links);
    if (failed) return failed;
    if (link >= links) return INVALID;
    *out = !(gpu->figures[NVLINK][1] >> link & 1);
    return SUCCESS;
}
int nvmlDeviceGetNvLinkErrorCounter(device_t gpu, unsigned int link, unsigned int counter, unsigned long long *out) {
    (void)link, (void)counter;
    return large(gpu, gpu->figures[NVLINK][2], out);
}
int nvmlDeviceGetPersistenceMode(device_t gpu, unsigned int *out) {
    return number(gpu, gpu->figures[PERSISTENCE][0], out);
}
int nvmlDeviceGetMigMode(device_t gpu, unsigned int *current, unsigned int *pending) {
    int failed = reach(gpu);
    if (failed) return failed;
    if (!gpu->mig_possible) return NOT_SUPPORTED;
    *current = *pending = gpu->instance_count > 0;
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(device_t gpu, unsigned int *out) { return number(gpu, MOST_INSTANCES, out); }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t gpu, unsigned int index, device_t *out) {
    int failed = reach(gpu);
    if (failed) return failed;
    if (index >= gpu->instance_count) return 6;
    *out = (device_t)(void *)&gpu->instances[index];
    return SUCCESS;
}

int nvmlGpmQueryDeviceSupport(device_t gpu, gpm_support_t *out) {
    int failed = reach(gpu);
    if (failed) return failed;
    out->supported = gpu->figures[ACTIVE][0] != UNSET;
    return SUCCESS;
}
int nvmlGpmSampleAlloc(gpm_sample_t **out) { return (*out = calloc(1, sizeof **out)) ? SUCCESS : TOO_SMALL; }
int nvmlGpmSampleFree(gpm_sample_t *sample) { free(sample); return SUCCESS; }
int nvmlGpmSampleGet(device_t gpu, gpm_sample_t *sample) { sample->device = gpu; return reach(gpu); }
int nvmlGpmMetricsGet(gpm_t *asked) {
    device_t gpu = ((gpm_sample_t *)asked->to)->device;
    for (unsigned int i = 0; i < asked->count; i++) {
        int known = asked->metrics[i].id == 2 && gpu->figures[ACTIVE][0] != UNSET; /* NVML_GPM_METRIC_SM_UTIL */
        asked->metrics[i].result = known ? SUCCESS : NOT_SUPPORTED;
        asked->metrics[i].value = known ? (double)gpu->figures[ACTIVE][0] : 0;
    }
    return SUCCESS;
}

int nvmlEventSetCreate(event_set_t **out) { return (*out = calloc(1, sizeof **out)) ? SUCCESS : TOO_SMALL; }
int nvmlEventSetFree(event_set_t *set) { free(set); return SUCCESS; }
int nvmlDeviceRegisterEvents(device_t gpu, unsigned long long types, event_set_t *set) {
    int failed = reach(gpu);
    if (failed || !(types & 8)) return failed; /* nvmlEventTypeXidCriticalError */
    long long index = gpu - state.gpus, *told = &set->told[index];
    set->registered[index] = 1;
    for (unsigned int i = 0; i < gpu->xid_count; i++)
        if (gpu->xids[i].number > *told) *told = gpu->xids[i].number;
    return SUCCESS;
}
int nvmlEventSetWait_v2(event_set_t *set, event_t *out, unsigned int timeout_ms) {
    (void)timeout_ms;
    int failed = refresh();
    if (failed) return failed;
    for (unsigned int at = 0; at < state.count; at++)
        for (unsigned int i = 0; set->registered[at] && i < state.gpus[at].xid_count; i++) {
            xid_t one = state.gpus[at].xids[i];
            if (one.number <= set->told[at]) continue;
            event_t event = {&state.gpus[at], 8, (unsigned long long)one.code, 0xffffffffu, 0xffffffffu};
            set->told[at] = one.number;
            *out = event;
            return SUCCESS;
        }
    return TIMED_OUT;
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
