//! Every metric.
