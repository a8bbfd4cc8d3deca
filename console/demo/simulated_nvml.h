/* The state file of the simulated NVML, named by TUNEDECK_SIMULATED_NVML and read again whenever it was changed.
 *
 * One setting a line, `#` begins a comment. Before the first `gpu` line they are about the driver:
 *
 *     driver 550.54.15        what nvmlSystemGetDriverVersion tells
 *     cuda 12040              CUDA version of the driver, 1000 * major + 10 * minor
 *     init 18                 nvmlInit fails with this nvmlReturn_t (9 driver not loaded, 18 version mismatch)
 *     wedge 60                every call on a card first sleeps so many seconds
 *
 * Each `gpu` line begins a card; the lines after it are about this one:
 *
 *     gpu GPU-00000000-0000-0000-0000-000000000001
 *     name SIMULATED H100 80GB
 *     pci 00000000:17:00.0
 *     memory 85899345920 1073741824      total and used, bytes
 *     util 87 40                         GPU and memory, percent
 *     temperature 61                     degrees C
 *     power 412000 700000                draw and enforced limit, mW
 *     clock 1980                         SM, MHz
 *     throttle 4                         nvmlClocksEventReasons bits
 *     ecc 0                              uncorrected, aggregate
 *     process 4711 1073741824            a compute process: pid and bytes; may be repeated
 *     lost 15                            every call on this card fails with this nvmlReturn_t (15 lost, 16 reset)
 *     wedge 60                           every call on this card first sleeps so many seconds
 *
 * What a card's lines leave out, the card answers with NVML_ERROR_NOT_SUPPORTED.
 */
#ifndef SIMULATED_NVML_H
#define SIMULATED_NVML_H

#define STATE_VARIABLE "TUNEDECK_SIMULATED_NVML"
#define MOST_GPUS 64
#define MOST_PROCESSES 64
#define WORD 128
#define UNSET (-1LL)

typedef struct {
    unsigned int pid;
    unsigned long long bytes;
} process_t;

typedef struct {
    char uuid[WORD], name[WORD], pci[32];
    long long total, used, util, memory_util, temperature, power, power_limit, clock, throttle, ecc, lost, wedge;
    unsigned int process_count;
    process_t processes[MOST_PROCESSES];
} gpu_t;

typedef struct {
    char driver[WORD];
    long long cuda, init, wedge;
    unsigned int count;
    gpu_t gpus[MOST_GPUS];
} state_t;

#endif
