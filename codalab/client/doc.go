// Package client calls a CodaLab server's REST API: what a worker says to it,
// what a researcher's commands ask of it, and contents in both directions.
//
// It promises:
//
//   - A call that the server refuses or does not answer fails with a
//     *codalab.Error, whose Transient says whether the same call may succeed
//     later. Nothing is sent twice, but for a call that the
//     server refused because its token had run out, and that the server has
//     therefore not acted on.
//   - Tokens are got when they are needed, renewed before they run out, and
//     kept in memory or in the caller's TokenCache. However many calls find
//     that they need one, one of them gets it.
//   - Contents are streams in both directions and never held in memory. A stream
//     to the server has a connection of its own. Its call succeeds only when the
//     answer comes after all of the stream was sent, and with
//     UploadOptions.Confirm only when the server has kept the contents.
//   - Neither a password nor a token is in any error.
//
// It works with CodaLab's own server and with that of this project; requests
// have the form that CodaLab's own commands and worker give them
// (codalab/client/json_api_client.py, codalab/worker/rest_client.py).
package client
