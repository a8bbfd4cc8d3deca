/* Preloaded into what runs on a test's machine: a wall clock that jumps, and a disk whose quota is used up.

   ODD_CLOCK: a file that holds the seconds by which the wall clock is off; read at each look at the clock.
   ODD_QUOTA: a file that, while it exists, names the folder in which nothing more may be written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int content(const char *variable, char *text, size_t size) {
    const char *path = getenv(variable);
    if (!path) return 0;
    int handle = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (handle < 0) return 0;
    long count = syscall(SYS_read, handle, text, size - 1);
    syscall(SYS_close, handle);
    if (count < 0) return 0;
    text[count] = 0;
    text[strcspn(text, "\n")] = 0;
    return 1;
}

static long off(void) {
    char text[32];
    int before = errno;
    long seconds = content("ODD_CLOCK", text, sizeof text) ? atol(text) : 0;
    errno = before;
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += off();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}

static int used_up(int handle) {
    char folder[1024], link[64], path[4096];
    int before = errno;
    if (!content("ODD_QUOTA", folder, sizeof folder)) { errno = before; return 0; }
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t count = readlink(link, path, sizeof path - 1);
    errno = before;
    if (count < 0) return 0;
    path[count] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

ssize_t write(int handle, const void *data, size_t size) {
    if (used_up(handle)) { errno = EDQUOT; return -1; }
    return syscall(SYS_write, handle, data, size);
}

ssize_t pwrite64(int handle, const void *data, size_t size, off64_t where) {
    if (used_up(handle)) { errno = EDQUOT; return -1; }
    return syscall(SYS_pwrite64, handle, data, size, where);
}

ssize_t pwrite(int handle, const void *data, size_t size, off_t where) { return pwrite64(handle, data, size, where); }
