// Package guesses decides when a password may be tried. It keeps guessers slow, and lets nobody keep a person with
// the right password out who has signed in before. It knows neither passwords nor the clock.
//
// # Three kinds of clients
//
// An Attempt has a name, and one of three kinds:
//
//   - A device has signed in with this name before, and proves it by its device token.
//   - A familiar client calls from a network from which this name has signed in before.
//   - All others are strangers.
//
// Each device, and each familiar network with a name, has a gate of its own. Strangers have two gates: one for the
// name, which they share wherever they are, and one for their network, which they share whatever the name. So
// strangers use up nothing that devices and familiar clients need.
//
// A gate lets a burst of attempts pass, and then one after each interval. An attempt with the right password is given
// back. Whoever finds a gate closed gets an appointment: the first time at which it is open again. Nobody else
// gets that time. At one gate a party has one appointment at most; a party is a network at a name's gate, and a name at
// a network's gate. So the wait grows with the number of parties, and not with the number of their attempts.
//
// Requests for mails have gates of the same kind, one for the recipient and one for the sender's network. They are kept apart
// from the guesses of passwords, in a Guesses of their own.
//
// # What this promises
//
//   - A device is let in at once, whatever others do (TestDeviceIsLetInAtOnceWhateverOthersDo).
//   - A familiar client is let in at once, whatever others do, unless they use its name on its network
//     (TestFamiliarClientIsLetInAtOnceWhateverOthersDo).
//   - A stranger is let in within (N+1) minutes, where N other networks try the name, and within (M+1) times three
//     seconds, where M other names are tried on its network (TestStrangerIsLetInAfterOneTurnOfEachOther).
//   - Strangers together make at most 75 wrong guesses of a name in any hour. A familiar network, and a device, make
//     at most 71 (TestGuessesOfANameAreBounded).
//   - An appointment is at most an hour away. Beyond that, strangers get none.
//   - Requests for mails send one recipient at most 9 in any two hours, and one network 140 (TestMailsToAnAddressAreBounded).
//     All who ask are strangers: whoever asks for mails to a recipient from four networks, again and again, takes all its appointments.
//
// No rule can do more for a client that looks just like a guesser, with the same name on the same network and
// without a device token: if it lets the first in after a number of attempts, it lets the second guess that often. Such a
// person signs in from elsewhere, or by a one-time code of the operator.
//
// # Where the ideas come from
//
// Device tokens are OWASP's device cookies ("Slow Down Online Guessing Attacks with Device Cookies"). Networks of IPv6
// have 48 bits, as in Dovecot's authentication penalty. NIST SP 800-63B, section 5.2.2, asks for a bound on failed
// attempts by account, and for exceptions for addresses and devices from which the user has signed in.
package guesses
