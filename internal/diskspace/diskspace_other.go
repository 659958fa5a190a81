//go:build !linux

package diskspace

import "errors"

// Of fails: on other systems than Linux only cl runs, which does not need it.
func Of(string) (Space, error) { return Space{}, errors.ErrUnsupported }
