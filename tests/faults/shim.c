/* Loaded into the runner (LD_PRELOAD): its clock can be set, and something happens once it has opened a path.

   FAULT_CLOCK: a file of 8 bytes, the seconds by which the time of day is wrong in all processes at once.
   FAULT_OPEN:  part of a path; when this process has opened such a file for the first time, FAULT_DO is run by sh.
   FAULT_MAIN:  the program whose opens count: part of its command line.
   gcc -shared -fPIC -O1 -o shim.so shim.c */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t nothing = 0;
static volatile int64_t *offset = &nothing;
static const char *pattern = NULL;
static const char *command = NULL;

__attribute__((constructor)) static void begin(void) {
    const char *clock = getenv("FAULT_CLOCK");
    if (clock) {
        int file = syscall(SYS_openat, AT_FDCWD, clock, O_RDONLY | O_CLOEXEC);
        void *found = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED) offset = found;
        if (file >= 0) close(file);
    }
    const char *program = getenv("FAULT_MAIN");
    char line[4096] = {0};
    int file = syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, line, sizeof line - 1);
    if (file >= 0) close(file);
    if (program && size > 0 && memmem(line, size, program, strlen(program))) {
        pattern = getenv("FAULT_OPEN");
        command = getenv("FAULT_DO");
    }
}

static void look(const char *path) {
    if (!pattern || !path || !strstr(path, pattern)) return;
    pattern = NULL;
    int status = system(command);
    (void)status;
}

#define MODE(flags) \
    int mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, int); va_end(list); }

static int opened(int at, const char *path, int flags, int mode) {
    int file = syscall(SYS_openat, at, path, flags, mode);
    int error = errno;
    look(path);
    errno = error;
    return file;
}

int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return opened(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return opened(at, path, flags, mode); }

int clock_gettime(clockid_t id, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, id, now);
    if (failed == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return (int)failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (where) *where = exact.tv_sec;
    return exact.tv_sec;
}
