"""The vocabulary: values, evidence, findings, reports. Pure data that imports nothing of ours."""
