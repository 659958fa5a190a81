// Package signin signs users in: it checks passwords, gives out and ends tokens, and knows the user of a
// token. The store has only hashes of passwords and tokens.
//
// A sign-in begins a session, which has a pair of tokens: an access token for an hour, and a refresh token, by which
// the program gets the next pair. Users see and end their sessions. A change of the password ends all of them but
// the one that made it.
//
// Package guesses decides whether a password may be tried now; if not, the answer is status 429. Then the password is
// hashed, which keeps a core busy. Known clients have places of their own for that, and strangers take turns by their
// networks. An unknown name takes as long as a wrong password, so that nobody learns which names exist.
//
// Where the server can send mails, people set a forgotten password, change their e-mail address and sign up by links in them.
// A link only shows a page, whose form acts: that for a password needs the code of the link, and that for an address the account's
// password besides. Answers do not tell which addresses users have.
package signin
