"""What is this bucket? Looks at paths and at a bounded sample of files, and tells what the settings must be."""
