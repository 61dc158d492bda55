graph [
  label "two links between the same cities, one node without a place"
  node [ id 0 label "New York" Latitude 40.71 Longitude -74.01 ]
  node [ id 1 label "London" Latitude 51.51 Longitude -0.13 ]
  node [ id 2 label "Nowhere" ]
  edge [ source 0 target 1 LinkSpeedRaw 1000000 ]
  edge [ source 0 target 1 LinkSpeedRaw 5000000 ]
  edge [ source 1 target 2 ]
]
