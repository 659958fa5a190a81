// Package hub keeps in memory what the server needs to know of connected workers: their last check-ins,
// the check-ins that wait for messages, the runs that they have, and the messages that they must get.
// It knows neither the store nor HTTP requests. After a restart, check-ins and Track restore all of it.
//
// # Messages
//
// The states of a worker's bundles determine what the worker must do: its duties. A bundle in state
// starting gives a run message, which the hub repeats until the worker claims the bundle. A bundle that
// is to be killed gives a kill message, which the hub repeats until the bundle has ended. So the loss of
// an answer to a check-in does no harm. Reads are repeated until the worker replies. Writes and netcat
// messages are sent once, because a second one could do something twice.
//
// A [CheckIn] is held until there are messages. It costs a goroutine, but no lock, transaction or
// database connection. The server holds one check-in of a worker: a newer one ends it.
//
// # Doorbells
//
// CodaLab's worker pauses for five seconds between two check-ins, and keeps a websocket open all the
// time: its doorbell. The hub rings when there is a message for a worker without a held check-in. A ring carries
// nothing and a lost one delays messages to the next check-in, so a websocket needs no sign-in. A stranger's
// websocket for a worker's id can delay that worker's messages by its pause, and can take the id's places.
//
// # Promises
//
//   - No method but Ask, Tell, CheckIn.Wait, Bells.Wait and Bell.Serve blocks. All are safe for concurrent use.
//   - Memory is bounded by the check-ins, runs, requests and doorbells that the limits allow.
//   - Of two programs that use one worker id at the same time, one is refused (codalab.CheckIn.Instance): the later one,
//     but with a worker token the earlier one (BeginCheckIn).
//   - The report of an older check-in does not replace that of a newer one (CheckIn.AcceptReport).
//   - A reply goes to the request that it answers or to none, also when it is late or the server was restarted.
package hub
