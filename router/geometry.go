package router

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

var (
	pointSchema = &schema{kind: kindStruct, name: "io.debezium.data.geometry.Point", version: "1", doc: "Geometry (POINT)", fields: []*field{
		{"x", requiredDouble}, {"y", requiredDouble}, {"wkb", optionalBytes}, {"srid", optionalInt32}}}
	geometrySchema = &schema{kind: kindStruct, name: "io.debezium.data.geometry.Geometry", version: "2", doc: "Geometry", fields: []*field{
		{"wkb", requiredBytes}, {"srid", optionalInt32}, {"extensions", &schema{kind: kindMap, optional: true, items: requiredString}}}}
	circleSchema = &schema{kind: kindStruct, name: "io.debezium.data.geometry.Circle", version: "1", doc: "Geometry (CIRCLE)", fields: []*field{
		{"center", pointSchema}, {"radius", requiredDouble}}}
)

func geometryCodec(name string) codec {
	switch name {
	case "point":
		return codec{schema: *pointSchema, read: func(b []byte) (any, error) {
			n, err := numbers(b, 2)
			if err != nil {
				return nil, err
			}
			return pointValue(n[0], n[1]), nil
		}}
	case "circle":
		return codec{schema: *circleSchema, read: func(b []byte) (any, error) {
			n, err := numbers(b, 3)
			if err != nil {
				return nil, err
			}
			return &structure{circleSchema, []any{pointValue(n[0], n[1]), n[2]}}, nil
		}}
	}
	return codec{schema: *geometrySchema, read: func(b []byte) (any, error) {
		n, err := numbers(b, 4)
		if err != nil {
			return nil, err
		}
		wkb := []byte{1, 3, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0}
		for _, v := range []float64{n[0], n[1], n[0], n[3], n[2], n[3], n[2], n[1], n[0], n[1]} {
			wkb = binary.LittleEndian.AppendUint64(wkb, math.Float64bits(v))
		}
		return &structure{geometrySchema, []any{byteArray(wkb), nil, mapping{{text("type"), text("box")}}}}, nil
	}}
}

func pointValue(x, y float64) *structure {
	wkb := []byte{1, 1, 0, 0, 0}
	wkb = binary.LittleEndian.AppendUint64(wkb, math.Float64bits(x))
	wkb = binary.LittleEndian.AppendUint64(wkb, math.Float64bits(y))
	return &structure{pointSchema, []any{x, y, byteArray(wkb), nil}}
}

// numbers picks that many numbers out of a text like "<(0,0),1>".
func numbers(b []byte, want int) ([]float64, error) {
	out := make([]float64, 0, want)
	for i := 0; i < len(b); {
		j := i
		for j < len(b) && b[j] != '(' && b[j] != ')' && b[j] != '<' && b[j] != '>' && b[j] != ',' {
			j++
		}
		if j > i {
			v, err := strconv.ParseFloat(string(b[i:j]), 64)
			if err != nil {
				return nil, fmt.Errorf("%q is no geometry: %w", b, err)
			}
			out = append(out, v)
		}
		i = j + 1
	}
	if len(out) != want {
		return nil, fmt.Errorf("%q is no geometry of %d numbers", b, want)
	}
	return out, nil
}
