package stocktest

import "net/http"

// Address is the server's address for callers of Client.
const Address = "http://stock.invalid"

// Client returns a client that calls the server over pipes instead of a network. It works in a
// bubble of testing/synctest, if New was called in the same bubble.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: s.pipes.Dial, MaxIdleConnsPerHost: 32}}
}
