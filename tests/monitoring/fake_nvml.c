/* Stands for the driver's libnvidia-ml.so.1: one GPU with planted figures, at 0000:3b:00.0.
 *
 *   FAKE_NVML  "no driver": does not start
 *              "nothing": no figure is supported
 *              "rising": it is busier each time it is asked
 *              otherwise: how many critical errors have happened; each is told once
 *
 * Built twice: as a library of today, and with OLD as one that lacks most functions. */
#include <stdlib.h>
#include <string.h>

enum { kNotSupported = 3, kInvalid = 2, kNotFound = 6, kTimeout = 10, kNotLoaded = 9 };

static int gpu;
static int events;
static int is(const char* word) {
  const char* said = getenv("FAKE_NVML");
  return said != NULL && strcmp(said, word) == 0;
}
/* What a figure's function returns, for our one GPU. */
static int answer(const void* device) {
  if (device != &gpu) return kInvalid;
  return is("nothing") ? kNotSupported : 0;
}

int nvmlInit_v2(void) { return is("no driver") ? kNotLoaded : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** device) {
  if (strcmp(pci, "0000:3b:00.0") != 0) return kNotFound;
  *device = &gpu;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned rates[2]) {
  static unsigned asked;
  rates[0] = is("rising") ? ++asked : 93;
  rates[1] = 41;
  return answer(device);
}

#ifdef OLD
/* As it was called before. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = 0x20 | 0x8; /* thermal by software; hardware */
  return answer(device);
}
#else
struct field {
  unsigned id, scope;
  long long timestamp, latency;
  int type, result;
  unsigned long long value;
};
struct event {
  void* device;
  unsigned long long type, data;
  unsigned instance, compute;
};

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  strncpy(text, "580.65.06", size);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long memory[3]) {
  memory[0] = 150ULL << 30;
  memory[1] = 50ULL << 30;
  memory[2] = 100ULL << 30;
  return answer(device);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 612500;
  return answer(device);
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  *celsius = 64;
  return sensor == 0 ? answer(device) : kInvalid;
}
int nvmlDeviceGetClockInfo(void* device, int clock, unsigned* megahertz) {
  *megahertz = clock == 1 ? 1980 : 3201;
  return clock == 1 || clock == 2 ? answer(device) : kInvalid;
}
int nvmlDeviceGetPcieThroughput(void* device, int direction, unsigned* kilobytes) {
  *kilobytes = direction == 0 ? 1500 : 2500;
  return answer(device);
}
int nvmlDeviceGetTotalEccErrors(void* device, int kind, int since, unsigned long long* count) {
  *count = kind == 0 ? 7 : 2;
  return since == 0 ? answer(device) : kInvalid;
}
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
  *reasons = 0x1 | 0x4 | 0x100; /* idle; power cap; a display */
  return answer(device);
}
int nvmlDeviceGetFieldValues(void* device, int count, struct field* fields) {
  for (int i = 0; i < count; ++i) {
    if (fields[i].scope != ~0U) return kInvalid;
    fields[i].type = 3; /* unsigned long long */
    fields[i].value = fields[i].id == 138 ? 4000 : 5000;
    fields[i].result = fields[i].id == 138 ? 0 : kNotSupported; /* one by one */
  }
  return answer(device);
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* on) {
  *on = link != 3;
  return link < 6 ? answer(device) : kInvalid;
}
int nvmlEventSetCreate(void** set) {
  *set = &events;
  return 0;
}
int nvmlEventSetFree(void* set) { return set == &events ? 0 : kInvalid; }
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  return types == 0x8 && set == &events ? answer(device) : kInvalid;
}
int nvmlEventSetWait_v2(void* set, struct event* event, unsigned milliseconds) {
  static int told;
  const char* said = getenv("FAKE_NVML");
  if (set != &events || milliseconds != 0) return kInvalid;
  if (told >= (said != NULL ? atoi(said) : 0)) return kTimeout;
  ++told;
  event->device = &gpu;
  event->type = 0x8;
  event->data = 79;
  return 0;
}
#endif
