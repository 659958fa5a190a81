// Package signin signs users in: it checks passwords, gives out and ends tokens, and knows the user of a
// token. The store has only hashes of passwords and tokens.
//
// Failed sign-ins are counted by name and address, and refused with status 429 when there are too many. An
// unknown name takes as long as a wrong password, so that nobody learns which names exist.
package signin
