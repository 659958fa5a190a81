// Package cache keeps immutable content on a disk that many hosts share.
package cache
