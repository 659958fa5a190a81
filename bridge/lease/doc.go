// Package lease gives a shared directory to one bridge at a time, on whatever host and with
// whatever ledger a second one is started.
//
// Two bridges on one shared directory would take each other's rings of the doorbell, and two of
// one name would take each other's messages from the server. The lock of a ledger keeps a second
// bridge from the same ledger only, and login nodes do not share flock(2). So a bridge takes a
// lease, in files of the shared directory.
//
// # Terms
//
// A term is the time for which one bridge holds the lease. Terms are numbered; the bridge with the
// highest one is the holder.
//
//	lease-7.json    the holder of term 7. Package linkonce makes sure that there is only one.
//	renewed-7.json  its last renewal: a count, a document, and whether it has ended
//
// The holder renews every ten seconds ([Lease.Renew]): it raises the count, and looks whether
// there is a higher term. If there is, it has lost the lease, and must stop.
//
// A bridge that starts takes the next term only if the holder has ended. It knows that
//
//   - by the holder's last renewal, if it ended in order ([Lease.End]);
//   - by the lock of the ledger, if both bridges have the same one: the caller says so;
//   - by silence: the bridge looked 60 times, every two seconds, and the count did not change.
//
// If several bridges take the same term, one gets it, and the others are refused.
//
// # Why so
//
// A bridge counts its own looks, and compares no clocks. So no live holder is taken for an ended
// one where clocks differ, or while the disk hangs for both bridges.
//
// A holder may be replaced although it lives: its host was suspended, or only this host lost the
// disk, for two minutes. The holder learns that at its next renewal. Until then two bridges work,
// each with a ledger of its own, so no decision is lost: I1 to I8 hold for each.
//
// The new holder removes the files of lower terms. A process that has not seen the new term yet
// may then settle a lower one once more. It looks again after that, and finds the higher one.
package lease
