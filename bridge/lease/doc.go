// Package lease lets only one bridge at a time use a shared directory, whatever the hosts and the ledgers
// of the bridges.
//
// Two bridges on one shared directory would take rings of the doorbell from each other, and two with one
// name would take messages of the server from each other. The lock of a ledger only excludes a second
// bridge with the same ledger, and login nodes do not share flock(2). So a bridge takes a lease, in files
// of the shared directory.
//
// # Terms
//
// A term is the time for which one bridge holds the lease. Terms are numbered; the bridge with the
// highest one is the holder.
//
//	lease-7.json    the holder of term 7. Package linkonce ensures that there is only one.
//	renewed-7.json  its last renewal: a count, a document, and whether it has ended
//
// The holder renews every ten seconds ([Lease.Renew]): it raises the count, and checks for a higher term. If
// there is one, it has lost the lease, and must stop.
//
// A bridge that starts takes the next term only if the holder has ended. It has three ways to find out:
//
//   - the holder's last renewal, if it ended in order ([Lease.End]);
//   - the lock of the ledger, if both bridges have the same one: the caller tells the result;
//   - silence: the bridge looked 60 times, every two seconds, and the count did not change.
//
// If several bridges take the same term, one gets it, and the others are refused.
//
// # Why so
//
// A bridge counts its own looks, and compares no clocks. So it does not mistake a live holder for an ended
// one if the clocks differ, or while the disk hangs for both bridges.
//
// A live holder may be replaced: its host was suspended for two minutes, or only its host lost the disk for
// so long. The holder notices at its next renewal. Until then two bridges work, each with its own ledger, so
// no decision is lost: I1 to I8 hold for each.
//
// The new holder removes the files of lower terms. A process that has not seen the new term yet may then
// take a lower one once more. It reads the directory again after that, and finds the higher term.
package lease
