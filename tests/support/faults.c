/* Makes calls of MPI ranks wait, fail or raise signals, as the environment says: preloaded into a
 * program under test.
 *
 *   AB_FAULTS        rules, separated by ';': RANK@CALL:TEXT:COUNT:ACTION=NUMBER
 *   AB_FAULTS_ARM    a file; until it is there, rules with a number for COUNT neither count nor act
 *   AB_FAULTS_CLOCK  a file; while it is there, the wall clock is off by the seconds that it holds
 *
 *   RANK    of MPI; *: all of them
 *   CALL    open (fopen too), stat (access too), read (pread), write (pwrite), sync (fsync)
 *   TEXT    what the path of the file has in it
 *   COUNT   n: the n-th such call alone; *: every one
 *   ACTION  sleep=MILLISECONDS
 *           signal=NUMBER: to the process
 *           error=ERRNO
 *           late=MILLISECONDS: what this process has not made itself is not there for it until so
 *               long after it was first looked for, as on a shared disk that shows new files late
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { kRules = 32, kPaths = 4096, kText = 256 };

struct rule {
  char call[kText], text[kText], action[kText];
  long count, number; /* count 0: every call */
  _Atomic long seen;
};

static struct rule rules[kRules];
static int rule_count;
static const char *arm_file, *clock_file;

/* Paths that this process made (0) or first looked for (then). */
static struct {
  uint64_t path;
  double since;
} known[kPaths];

static int known_count;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

/* What this library's function of that name stands before. */
#define REAL(name)               \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int there(const char* path) { return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0; }

static double now(void) {
  struct timespec t;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(long milliseconds) {
  const double end = now() + 1e-3 * (double)milliseconds;
  for (double left = end - now(); left > 0; left = end - now()) {
    const struct timespec t = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
    nanosleep(&t, NULL);
  }
}

static uint64_t hash(const char* text) {
  uint64_t h = 0xCBF29CE484222325u;
  for (; *text; ++text) h = (h ^ (unsigned char)*text) * 0x100000001B3u;
  return h;
}

/* When a path was made (0) or first looked for; if it is new, it is noted with `since`. */
static double note(const char* path, double since) {
  const uint64_t key = hash(path);
  pthread_mutex_lock(&known_lock);
  int i = 0;
  while (i < known_count && known[i].path != key) ++i;
  if (i == known_count && known_count < kPaths) {
    known[known_count].path = key;
    known[known_count++].since = since;
  } else if (i < known_count && since == 0) {
    known[i].since = 0;
  }
  const double noted = i < kPaths ? known[i].since : 0;
  pthread_mutex_unlock(&known_lock);
  return noted;
}

__attribute__((constructor)) static void read_rules(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *text = getenv("AB_FAULTS");
  if (!rank) rank = getenv("PMIX_RANK"); /* srun's */
  if (!rank) return;                     /* the launcher */
  clock_file = getenv("AB_FAULTS_CLOCK");
  arm_file = getenv("AB_FAULTS_ARM");
  while (text && *text && rule_count < kRules) {
    struct rule* r = &rules[rule_count];
    char of[kText], count[kText];
    const int parts = sscanf(text, "%255[^@]@%255[^:]:%255[^:]:%255[^:]:%255[^=]=%ld", of, r->call,
                             r->text, count, r->action, &r->number);
    if (parts != 6) {
      fprintf(stderr, "faults: cannot read the rule %s\n", text);
      abort();
    }
    r->count = count[0] == '*' ? 0 : atol(count);
    if (of[0] == '*' || strcmp(of, rank) == 0) ++rule_count;
    text = strchr(text, ';');
    if (text) ++text;
  }
}

/* Whether the call is to fail, with errno set. */
static int fails(const char* call, const char* path) {
  const int before = errno;
  for (struct rule* r = rules; path && r < rules + rule_count; ++r) {
    if (strcmp(r->call, call) != 0 || !strstr(path, r->text)) continue;
    if (r->count > 0 && ((arm_file && !there(arm_file)) || ++r->seen != r->count)) continue;
    if (strcmp(r->action, "sleep") == 0) {
      nap(r->number);
    } else if (strcmp(r->action, "signal") == 0) {
      kill(getpid(), (int)r->number);
    } else if (strcmp(r->action, "error") == 0) {
      errno = (int)r->number;
      return 1;
    } else if (strcmp(r->action, "late") == 0 && there(path)) {
      const double since = note(path, now());
      if (since == 0 || now() - since > 1e-3 * (double)r->number) continue;
      errno = ENOENT;
      return 1;
    }
  }
  errno = before;
  return 0;
}

static int descriptor_fails(const char* call, int descriptor) {
  if (rule_count == 0) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0) return 0;
  path[n] = 0;
  return fails(call, path);
}

static int open_file(const char* path, int flags, mode_t mode, int (*real)(const char*, int, ...)) {
  if (rule_count > 0 && flags & O_CREAT) note(path, 0);
  if (fails("open", path)) return -1;
  return real(path, flags, mode);
}

#define OPEN(name)                             \
  int name(const char* path, int flags, ...) { \
    REAL(name);                                \
    va_list more;                              \
    va_start(more, flags);                     \
    const mode_t mode = va_arg(more, mode_t);  \
    va_end(more);                              \
    return open_file(path, flags, mode, real); \
  }
#define FOPEN(name)                                       \
  FILE* name(const char* path, const char* mode) {        \
    REAL(name);                                           \
    if (rule_count > 0 && mode[0] != 'r') note(path, 0);  \
    return fails("open", path) ? NULL : real(path, mode); \
  }
#define LOOK(name, to_type)                           \
  int name(const char* path, to_type to) {            \
    REAL(name);                                       \
    return fails("stat", path) ? -1 : real(path, to); \
  }
#define MOVE(name, call, data_type, offset_type)                                            \
  ssize_t name(int descriptor, data_type data, size_t bytes, offset_type offset) {          \
    REAL(name);                                                                             \
    return descriptor_fails(call, descriptor) ? -1 : real(descriptor, data, bytes, offset); \
  }

OPEN(open)
OPEN(open64)
FOPEN(fopen)
FOPEN(fopen64)
LOOK(stat, struct stat*)
LOOK(stat64, struct stat64*)
LOOK(lstat, struct stat*)
LOOK(lstat64, struct stat64*)
LOOK(access, int)
MOVE(pread, "read", void*, off_t)
MOVE(pread64, "read", void*, off64_t)
MOVE(pwrite, "write", const void*, off_t)
MOVE(pwrite64, "write", const void*, off64_t)

int fsync(int descriptor) {
  REAL(fsync);
  return descriptor_fails("sync", descriptor) ? -1 : real(descriptor);
}

/* The server knows a folder that another has made, whatever this process was told before. */
int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  if (rule_count > 0) note(path, 0);
  return real(path, mode);
}

int rename(const char* from, const char* to) {
  REAL(rename);
  if (rule_count > 0) note(to, 0);
  return real(from, to);
}

static time_t clock_error(void) {
  if (!clock_file || !there(clock_file)) return 0;
  char text[32] = {0};
  const int file = (int)syscall(SYS_openat, AT_FDCWD, clock_file, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
  close(file);
  return (time_t)atoll(text);
}

int clock_gettime(clockid_t clock, struct timespec* to) {
  REAL(clock_gettime);
  const int code = real(clock, to);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) to->tv_sec += clock_error();
  return code;
}

int gettimeofday(struct timeval* restrict to, void* restrict zone) {
  REAL(gettimeofday);
  const int code = real(to, zone);
  to->tv_sec += clock_error();
  return code;
}

time_t time(time_t* to) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (to) *to = t.tv_sec;
  return t.tv_sec;
}
