package colour

import "golang.org/x/sys/windows"

// needsTerm is set where a terminal without a name in TERM knows no commands.
const needsTerm = false

// Enable prepares a terminal for colours, and reports whether it shows them. Consoles before Windows 10 show none.
func Enable(fd int) bool {
	console := windows.Handle(fd)
	var mode uint32
	if windows.GetConsoleMode(console, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
