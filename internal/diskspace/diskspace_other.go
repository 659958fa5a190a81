//go:build !linux

package diskspace

import "errors"

// Of fails: only cl runs on other systems than Linux, and it does without.
func Of(string) (Space, error) { return Space{}, errors.ErrUnsupported }
