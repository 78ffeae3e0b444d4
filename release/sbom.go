// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

const sbomName = "seine.spdx.json"

// The part of SPDX 2.3 that says what a binary is made of.
type spdx struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string     `json:"SPDXID"`
	Name      string     `json:"name"`
	Version   string     `json:"versionInfo"`
	From      string     `json:"downloadLocation"`
	Analyzed  bool       `json:"filesAnalyzed"`
	Declared  string     `json:"licenseDeclared"`
	Concluded string     `json:"licenseConcluded"`
	Copyright string     `json:"copyrightText"`
	Purpose   string     `json:"primaryPackagePurpose"`
	Checksums []checksum `json:"checksums,omitempty"`
	Source    string     `json:"sourceInfo,omitempty"`
	Refs      []ref      `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type ref struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// sbom is the bill of materials of a binary.
func sbom(s *src, arch string, bin []byte, mods []module) ([]byte, error) {
	hash := fmt.Sprintf("%x", sha256.Sum256(bin))
	name := fmt.Sprintf("seine-%s-linux-%s", s.version, arch)
	const none = "NOASSERTION"
	d := spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: "https://spdx.org/spdxdocs/" + name + "-" + hash,
		Creation:  creation{Created: s.time.Format(time.RFC3339), Creators: []string{"Tool: seine-release"}},
		Packages: []spdxPackage{{
			ID: "SPDXRef-seine", Name: "seine", Version: s.version, From: none,
			Declared: "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)", Concluded: none, Copyright: "the seine authors",
			Purpose: "APPLICATION", Checksums: []checksum{{"SHA256", hash}},
		}},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-seine"}},
	}
	for _, m := range mods {
		p := spdxPackage{
			ID: "SPDXRef-" + notID.ReplaceAllString(m.path, "-"), Name: m.path, Version: m.version, From: none,
			Declared: m.licence, Concluded: none, Copyright: none, Purpose: "LIBRARY",
			Refs: []ref{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.path + "@" + m.version}},
		}
		if m.sum != "" {
			p.Source = "go.sum: " + m.sum
		}
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{"SPDXRef-seine", "DEPENDS_ON", p.ID})
	}
	b, err := json.MarshalIndent(d, "", "  ")
	return append(b, '\n'), err
}

// notID is what an SPDX id must not have.
var notID = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)
