// Package usage keeps how a run uses processors, memory and GPUs over time, from what its worker tells at each
// check-in. CodaLab's own workers tell it, too.
//
// # Series
//
// A Run has a series of at most 240 sections of equal length. When there is no room for another one, each two
// neighbours become one, and the length doubles: a run of two minutes has sections of five seconds, one of two weeks has
// sections of an hour and a half. A section keeps the means and the highest values. The times are the server's: a worker
// tells only for how long the command has run. While it does not run, such as between two attempts, the series has a gap.
//
// # Where it is kept
//
// A Keeper has the series of the runs that go on in memory. A check-in that stores a run writes its series too, in the same
// transaction, when the run has ended. Before that it writes the series when its time has doubled since the last write, or after
// nine minutes, but not more than once a minute: the writes cost more than all else that reports do with a series. A run that
// goes on is stored twice a minute, so a crash of the server loses the details of at most ten minutes. A stored series has the
// run's counters of processor time, with which the next report covers the lost time with a mean.
package usage
