// Package plot draws series of numbers as lines of text. It is pure.
package plot
