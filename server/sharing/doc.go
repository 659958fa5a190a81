// Package sharing serves the requests that set what groups may do with bundles and worksheets.
package sharing
