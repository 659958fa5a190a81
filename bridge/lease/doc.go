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
// A term is the time for which one bridge holds the lease. Terms are numbered; the holder of the
// highest one is the holder.
//
//	lease-7.json    who has term 7: one record, by the protocol of package linkonce
//	renewed-7.json  what the holder wrote last: a count, its document, whether it has ended
//
// The holder renews every ten seconds ([Lease.Renew]): it raises the count, and looks whether
// there is a higher term. If so it has lost the lease, and must stop.
//
// A bridge that starts takes the next term only if the holder is over. It knows so
//
//   - by the holder's last words, if it ended in order ([Lease.End]);
//   - by the lock of the ledger, if both have the same one: the caller says so;
//   - by silence: the count did not change while the bridge looked 60 times within two minutes.
//
// Of several bridges that take the same term one gets it; the others are refused.
//
// # Why so
//
// Silence is counted in looks, two seconds apart by the bridge's own clock. So neither clocks
// that differ nor a disk that hangs for both bridges makes a live holder look dead.
//
// A holder whose host was suspended, or was cut off from the disk alone, for two minutes may
// have been replaced. It learns that at its next renewal, and works beside the new holder until
// then. Each has its own ledger, so no decision is lost; I1 to I8 hold for each.
//
// Files of lower terms are removed. A process that has not seen a higher term yet may then
// settle a lower one again; it looks once more after that, and finds the higher one.
package lease
