// failboot LIBRARY JOB tells slurmctld that the node of a job could not be configured (slurm.h: JOB_RECONFIG_FAIL). A
// job that may not be requeued then ends as BOOT_FAIL (Slurm src/slurmctld/job_mgr.c: _job_requeue_op). No command of
// Slurm does this; programs that boot nodes for Slurm do.
#include <dlfcn.h>
#include <stdio.h>

enum { reconfig_fail = 1 << 17 };

int main(int argc, char **argv) {
  void *slurm = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
  if (slurm == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  void (*init)(const char *) = dlsym(slurm, "slurm_init");
  int (*requeue)(char *, unsigned, void **) = dlsym(slurm, "slurm_requeue2");
  void *answers = NULL;
  if (init != NULL) init(NULL);
  if (requeue == NULL) return 1;
  requeue(argv[2], reconfig_fail, &answers); // it answers that the job may not be requeued
  return 0;
}
