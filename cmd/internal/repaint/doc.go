// Package repaint shows texts on a terminal in place of the ones before: Line the last line, and Screen all of it. Both
// write only what has changed, and leave the terminal as it was.
//
// The texts have no characters that steer a terminal: callers pass foreign texts through package termtext, and may paint
// them.
package repaint
