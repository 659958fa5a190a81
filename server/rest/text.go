package rest

// MaxWorkerText bounds a worker's id, and the other texts that the server keeps of a worker in memory, in
// bytes.
const MaxWorkerText = 256

// Deref returns a text; empty for nil.
func Deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
