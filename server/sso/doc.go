// Package sso signs users in by a provider of OpenID Connect, in a browser, for programs on machines without one.
//
// cl asks the server for two codes (RFC 8628). It shows its user the short one, and asks again and again with the long one.
// The user opens the server's page in any browser, types the short code, and is sent to the provider. The browser comes
// back with the provider's code, which the server exchanges for a token about the person (authorization code flow with
// PKCE, RFC 7636). The next time that cl asks, it gets the same tokens of this server as for a password.
//
//	cl ── device code ──► server ◄── page, short code ── browser
//	                        │  ◄──────── code, state ──────┤
//	                        └── code, secret ──► provider ◄┘ login
//
// The short code is in no address, which would get into logs, histories and mails: a person who has not begun a sign-in has
// none to type. The page shows the address of the machine that has asked. A sign-in at the provider belongs to the browser
// that has begun it: its state is of use with that browser's cookie alone, and once.
//
// Everything under way is in memory: after a restart of the server people begin again.
package sso
