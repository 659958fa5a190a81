package container_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// Engines of older versions show some of these files, and let no command change the settings.
func TestFilesAndSettingsOfTheKernelAreAsInNewDockers(t *testing.T) {
	t.Parallel()
	c := container.Container{SIF: shellImage(t), ShellCommand: `
cat /proc/keys /proc/interrupts /proc/timer_list
for f in /sys/firmware/* /sys/devices/virtual/powercap/*; do test -e $f && echo $f; done
cat /proc/sys/kernel/shmmni >/dev/null && echo readable
echo 5 2>&- >/proc/sys/kernel/shmmni && echo changed
echo 5 2>&- >/proc/sys/fs/mqueue/msg_max && echo changed
true`}
	for name, w := range map[string]testRuntime{"ids": {}, "one id": {oneID: true}} {
		if got := w.shell(t, c); strings.Replace(got, "readable\n", "", 1) != "" {
			t.Errorf("%s: output %q, want none", name, got)
		}
	}
}
