// Package rest has what all handlers of the server's REST API share: routes, refusals, JSON:API documents,
// query parameters, and the pace that clients must keep. It knows users, and no store handle.
//
// A Handler serves one Route for a user. It writes the answer or returns an error. A RefusalError is an error
// for the client. AnswerError logs every other error, and tells the client no more than that something went
// wrong.
package rest
