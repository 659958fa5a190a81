package kubernetes

// Watches reports whether Run has begun.
func (b *Backend) Watches() bool { return b.watch.Load() != nil }
