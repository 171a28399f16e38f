"""Embedded cluster: applies environment folders, and runs TFJobs as processes of this machine."""
