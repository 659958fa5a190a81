// Package plot draws series of numbers as lines of text. It keeps a bounded number of points of each series, however many
// come, and of those the lowest and the highest of each section, so that no peak is lost. It is pure.
package plot
