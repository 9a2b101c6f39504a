// Package shop is what the examples have in common: a shop whose orders are shipped by jobs.
package shop

import (
	_ "embed"
	"errors"
)

// Schema makes the shop's tables.
//
//go:embed schema.sql
var Schema string

// Ship is the payload of the job that ships an order.
type Ship struct{ Order int64 }

// Kind is part of jq.Payload.
func (Ship) Kind() string { return "ship-order" }

// ErrSoldOut is the error of an order for an item that is not in stock.
var ErrSoldOut = errors.New("sold out")
