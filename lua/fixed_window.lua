-- The fixed window: this window's units, and none of the one before.
-- src/ratelimit/algorithm/fixed_window.rs is the specification.

rules.fixed_window = function(current, _, quota, _, _, cost)
  return current + cost <= quota
end
