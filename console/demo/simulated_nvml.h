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
 *     reserved 629145600                 of memory's total, by driver and firmware, bytes
 *     bar1 137438953472 2097152          total and used, bytes
 *     codec 0 0                          encoder and decoder, percent
 *     active 71                          SMs that were busy, percent (GPM)
 *     slowdown 89                        where the card slows itself down, degrees C
 *     hbm 66                             temperature of the memory, degrees C
 *     clock 1980 1980 2619               SM, its maximum, memory, MHz
 *     throttle 4                         nvmlClocksEventReasons bits
 *     ecc 0 0                            uncorrected and corrected, aggregate
 *     rows 0 0 0 0                       remapped for correctable and uncorrectable errors, pending, failed
 *     pages 0 0 0                        retired for single-bit and double-bit errors, pending
 *     pcie 5 5 16 16 0                   generation, its maximum, width, its maximum, replays
 *     nvlink 18 0 0                      links, bits of those that are down, errors of each kind on each link
 *     persistence 1
 *     serial 1650000000001
 *     vbios 96.00.74.00.01
 *     mig MIG-0001 10737418240 1048576 1g.10gb   an instance: UUID, total, used, profile; switches MIG mode on
 *     nomig                              MIG is possible here, and off
 *     xid 3 79                           an Xid with its running number: each number is handed out once
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
#define MOST_INSTANCES 7
#define MOST_XIDS 256
#define MOST_VALUES 5
#define WORD 128
#define UNSET (-1LL)

typedef struct {
    unsigned int pid;
    unsigned long long bytes;
} process_t;

typedef struct {
    char uuid[WORD], profile[32];
    unsigned long long total, used;
} instance_t;

typedef struct {
    long long number, code;
} xid_t;

/* the settings that are numbers, up to MOST_VALUES each */
enum figure {
    MEMORY, RESERVED, BAR1, UTIL, CODEC, ACTIVE, TEMPERATURE, SLOWDOWN, HBM, POWER, CLOCK, THROTTLE, ECC, ROWS, PAGES,
    PCIE, NVLINK, PERSISTENCE, LOST_WITH, WEDGE, FIGURES
};

typedef struct {
    char uuid[WORD], name[WORD], pci[32], serial[WORD], vbios[WORD];
    long long figures[FIGURES][MOST_VALUES];
    unsigned int process_count, instance_count, xid_count, mig_possible;
    process_t processes[MOST_PROCESSES];
    instance_t instances[MOST_INSTANCES];
    xid_t xids[MOST_XIDS];
} gpu_t;

typedef struct {
    char driver[WORD];
    long long cuda, init, wedge;
    unsigned int count;
    gpu_t gpus[MOST_GPUS];
} state_t;

#endif
