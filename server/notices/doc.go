// Package notices mails users when bundles have ended for which they asked, also if no program of theirs runs any more.
//
// A notice is a row of the store with its bundles: an outbox. A mail goes to the address that the server has of the user,
// which the operator has set or the user has confirmed, and the server alone composes it. So nobody can send mails to others with it.
//
// # Once
//
// A [Notices] that runs looks for notices whose bundles have all ended, as long as there are notices. It sends the mail, and
// then notes that in the row. A mail is never lost, therefore: what a crash interrupts is sent at the next start. Between
// the two steps a crash lets a mail come twice, with one Message-ID. A user has one notice for the same bundles, and a
// second wish for it returns the first one. Rows that are done stay for a month, so that this holds behind the mail, too.
//
// A server that does not take mails is tried again, for three days. A mail that it refuses for good is given up.
package notices
