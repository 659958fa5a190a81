// Package queues tells users which queues serve them (GET /queues), and what a new run can expect there. Package plan has
// the rules: a queue is shown to those whose runs it takes, and to root. It names nobody whom the reader does not know.
package queues
