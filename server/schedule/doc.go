// Package schedule moves bundles on: it stages the children of a bundle that has ended, gives staged runs to
// workers, begins to make make bundles, and finds the bundles of which nothing is heard. Package plan
// decides. This package reads what a decision needs from the store and the hub, and writes the result.
//
// A handler changes a bundle in one transaction of the store and then names it by Changes.Add. Only
// Scheduler.Run acts on changes. Run begins with all unfinished bundles, so a crash at any point loses
// nothing. What Run cannot do, because the disk is full for example, it tries again at its next pass, every
// five seconds.
package schedule
