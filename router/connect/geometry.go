package connect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

var (
	pointSchema = &Schema{Kind: KindStruct, Name: "io.debezium.data.geometry.Point", Version: "1",
		Doc: "Geometry (POINT)", Fields: []*Field{
			{"x", requiredDouble}, {"y", requiredDouble}, {"wkb", optionalBytes},
			{"srid", optionalInt32}}}
	geometrySchema = &Schema{Kind: KindStruct, Name: "io.debezium.data.geometry.Geometry",
		Version: "2", Doc: "Geometry", Fields: []*Field{
			{"wkb", requiredBytes}, {"srid", optionalInt32},
			{"extensions", &Schema{Kind: KindMap, Optional: true, Items: RequiredString}}}}
	lineSchema = &Schema{Kind: KindStruct, Name: "io.debezium.data.geometry.Line", Version: "1",
		Doc: "Geometry (LINE)", Fields: []*Field{
			{"a", requiredDouble}, {"b", requiredDouble}, {"c", requiredDouble}}}
	circleSchema = &Schema{Kind: KindStruct, Name: "io.debezium.data.geometry.Circle",
		Version: "1", Doc: "Geometry (CIRCLE)", Fields: []*Field{
			{"center", pointSchema}, {"radius", requiredDouble}}}
)

// geometries are the codecs of points and shapes, made of the numbers in their text.
var geometries = map[string]struct {
	schema  *Schema
	numbers int // in the text; -1: any number of pairs
	values  func(n []float64, text []byte) []any
}{
	"point": {pointSchema, 2, func(n []float64, _ []byte) []any { return point(n[0], n[1]) }},
	"circle": {circleSchema, 3, func(n []float64, _ []byte) []any {
		return []any{&Structure{pointSchema, point(n[0], n[1])}, n[2]}
	}},
	"line": {lineSchema, 3, func(n []float64, _ []byte) []any { return []any{n[0], n[1], n[2]} }},
	"box": {geometrySchema, 4, func(n []float64, _ []byte) []any {
		ring := []float64{n[0], n[1], n[0], n[3], n[2], n[3], n[2], n[1], n[0], n[1]}
		return shape(wkbPolygon, ring, "box")
	}},
	"polygon": {geometrySchema, -1, func(n []float64, _ []byte) []any {
		if last := len(n) - 2; last > 0 && (n[0] != n[last] || n[1] != n[last+1]) {
			n = append(n, n[0], n[1])
		}
		return shape(wkbPolygon, n, "polygon")
	}},
	"path": {geometrySchema, -1, func(n []float64, b []byte) []any {
		closed := Text(strconv.FormatBool(b[0] == '('))
		return shape(wkbLineString, n, "path", Entry{Text("closed"), closed})
	}},
	"lseg": {geometrySchema, 4, func(n []float64, _ []byte) []any {
		return shape(wkbLineString, n, "lseg")
	}},
}

// Kinds of shapes in well-known binary.
const (
	wkbLineString = 2
	wkbPolygon    = 3
)

// shape makes a shape of one ring or string of points, with what its kind is in PostgreSQL.
func shape(wkbKind byte, coordinates []float64, kind string, more ...Entry) []any {
	wkb := []byte{1, wkbKind, 0, 0, 0}
	if wkbKind == wkbPolygon {
		wkb = binary.LittleEndian.AppendUint32(wkb, 1)
	}
	wkb = binary.LittleEndian.AppendUint32(wkb, uint32(len(coordinates)/2))
	wkb = appendCoordinates(wkb, coordinates...)
	return []any{ByteArray(wkb), nil, append(Map{{Text("type"), Text(kind)}}, more...)}
}

func appendCoordinates(dst []byte, coordinates ...float64) []byte {
	for _, v := range coordinates {
		dst = binary.LittleEndian.AppendUint64(dst, javaBits(v))
	}
	return dst
}

func point(x, y float64) []any {
	return []any{x, y, ByteArray(appendCoordinates([]byte{1, 1, 0, 0, 0}, x, y)), nil}
}

// numbers picks that many numbers out of a text like "<(0,0),1>"; -1: any number of pairs.
func numbers(b []byte, want int) ([]float64, error) {
	out := make([]float64, 0, max(want, 8))
	between := func(c rune) bool { return bytes.ContainsRune([]byte("()<>[]{},"), c) }
	for _, text := range bytes.FieldsFunc(b, between) {
		v, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no geometry: %w", b, err)
		}
		out = append(out, v)
	}
	if want >= 0 && len(out) != want || want < 0 && (len(out) == 0 || len(out)%2 != 0) {
		return nil, fmt.Errorf("%q is no geometry of %d numbers", b, want)
	}
	return out, nil
}
