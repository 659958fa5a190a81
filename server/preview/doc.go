// Package preview turns the beginning of a file into what a page shows of it: coloured source code, a table, the cells of a
// notebook, or text. Anybody may have written the file: each preview takes a bounded time and memory, whatever is in it,
// and its HTML has nothing but text in elements of ours.
package preview
