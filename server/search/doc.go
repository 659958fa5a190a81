// Package search reads searches of requests, bounds their time and their results, and words their errors.
// The store finds.
package search
