// Package client calls a CodaLab server's REST API, for workers and for the researcher's
// commands, and transfers contents in both directions.
//
// It promises:
//
//   - A call that the server refuses or does not answer fails with a *codalab.Error. Its
//     method Transient reports whether the same call may succeed later. The client sends no call
//     twice, except one that the server refused because the token had expired: the server
//     has not acted on it.
//   - The client gets a token when it needs one, renews it before it expires, and keeps it in
//     memory or in the caller's TokenCache. Concurrent calls that need a token share one
//     renewal.
//   - Contents are streams and never held in memory. An upload has a connection of its own.
//     It succeeds only if the answer comes after the whole stream was sent, and with
//     UploadOptions.Confirm only if the server has kept the contents.
//   - No error contains a password or a token.
//
// It works with CodaLab's own server and with package server. Requests have the form of
// CodaLab's own commands and worker (codalab/client/json_api_client.py,
// codalab/worker/rest_client.py).
package client
