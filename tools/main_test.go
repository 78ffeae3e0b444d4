// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"os"
	"testing"

	"seine/internal/object"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv("SEINE_TEST_OBJECTS"); folder != "" {
		object.Use(os.DirFS(folder)) // make mutants sets it
	}
	os.Exit(m.Run())
}
