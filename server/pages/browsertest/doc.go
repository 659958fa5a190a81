// Package browsertest plays the web pages of cl-server in a real browser, Debian's Chromium without a window: what a person
// sees, types and clicks, with and without scripts, on a phone, in the dark and by the keyboard alone.
//
// Each test has a cl-server of its own, as it is shipped, and its people use cl. Runs really run: a worker takes them from
// the server, and runs their commands in the shell. All tests share one Chromium, in which each has profiles of its own.
//
// The package is a module of its own, so that the driver of the browser is no dependency of the product.
package browsertest
