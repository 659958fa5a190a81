package container_test

import "testing"

// Engines of older versions show some of these files, and let no command change the settings.
func TestFilesAndSettingsOfTheKernelAreAsInNewDockers(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.hasStore() {
			t.Skip("this is the engine's doing")
		}
		c := w.shellImage(t)
		c.ShellCommand = `
cat /proc/keys /proc/interrupts; cat /proc/timer_list 2>&-
for f in /sys/firmware/* /sys/devices/virtual/powercap/*; do test -e $f && echo $f; done
cat /proc/sys/kernel/shmmni >/dev/null && echo readable
echo 5 2>&- >/proc/sys/kernel/shmmni && echo changed
echo 5 2>&- >/proc/sys/fs/mqueue/msg_max && echo changed
true`
		if got := w.shell(t, c); got != "readable\n" {
			t.Errorf("output %q", got)
		}
	})
}
