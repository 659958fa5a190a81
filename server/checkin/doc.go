// Package checkin serves workers by CodaLab's protocol: it applies the reports in their check-ins, answers
// with messages, and gives claims. Package hub has the workers, and package plan applies a report
// to a bundle.
//
// The server holds a check-in while there is no message for the worker. While a check-in is held, CodaLab's
// worker starts and ends no runs, so the server does not hold those of a worker with a doorbell.
//
// # A disk shared with workers
//
// With Config.SharedDisk, a worker may report that it shares the store's disk. A run message
// then tells it the location of each parent, and an empty location for the results
// that belongs to this assignment of the bundle. When the worker reports the end of the run,
// and has uploaded no contents, the server takes the results: it flushes and counts what is
// in that directory and makes it the bundle's contents. Only then does it apply and
// acknowledge the report. After a crash before that point the worker reports again.
package checkin
