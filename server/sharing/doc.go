// Package sharing serves the requests that set permissions of groups on bundles and worksheets.
package sharing
