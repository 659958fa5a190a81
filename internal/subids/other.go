//go:build !linux

package subids

// Main does nothing: on other systems than Linux only cl runs, which makes no such helper.
func Main([]string) (code int, ran bool) { return 0, false }
