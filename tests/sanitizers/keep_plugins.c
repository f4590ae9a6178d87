/* LeakSanitizer names leaks by module, so Open MPI must not unload its plugins before the check. */
int dlclose(void* handle) {
  (void)handle;
  return 0;
}
